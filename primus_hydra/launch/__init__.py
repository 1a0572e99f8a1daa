"""From a composed job to running ranks: the launch plan, the local launcher, the agent."""
