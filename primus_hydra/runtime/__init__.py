"""What happens inside one rank: the flow from the resolved configuration to a trained model."""
