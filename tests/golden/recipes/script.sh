#!/bin/bash
# Trains a small model of the family on two nodes.
export CUDA_DEVICE_MAX_CONNECTIONS=1
TP=2
DATA="/data/tokens_text_document"
DISTRIBUTED_ARGS=(
    --nproc_per_node 8
    --nnodes 2
    --master_addr $MASTER_ADDR_OF_SITE
)
GPT_ARGS="
    --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --ffn-hidden-size 5632 \
    --seq-length 2048 --max-position-embeddings 2048 \
    --normalization RMSNorm --swiglu --disable-bias-linear --position-embedding-type rope \
    --micro-batch-size 4 --global-batch-size ${BATCH:-512} --lr 2.0e-4 --train-iters 10000 \
    --tensor-model-parallel-size $TP --fp16 --recompute-activations \
    --attention-dropout 0.0 --hidden-dropout 0.0 # none
"
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py ${GPT_ARGS} \
    --data-path $DATA \
    --tokenizer-type GPT2BPETokenizer --vocab-file vocab.json --merge-file merges.txt \
    --vocab-size 50304
