"""slurm.conf of the tests' cluster: preemption by partition, short timeouts, no accounting, no control groups."""

from __future__ import annotations

SLURM_CONF = """\
ClusterName=primus-tests
SlurmctldHost=ctl({net}.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/run/munge.sock,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd.%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
SlurmctldDebug=info
SlurmdDebug=info
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmctldTimeout=10
SlurmdTimeout=10
InactiveLimit=0
KillWait=10
MinJobAge=300
CompleteWait=0
WaitTime=0
MessageTimeout=10
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=1000
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=2,sched_min_interval=0,batch_sched_delay=0
PriorityType=priority/multifactor
PriorityWeightJobSize=100
PriorityWeightPartition=1000
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
GresTypes=gpu
RebootProgram=/bin/true
NodeName=DEFAULT CPUs=64 Boards=1 SocketsPerBoard=2 CoresPerSocket=32 ThreadsPerCore=1 RealMemory=500000 Gres=gpu:{gpus}
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=REQUEUE
PartitionName=spot Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime={grace}
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=100 PreemptMode=OFF
{more}
"""
