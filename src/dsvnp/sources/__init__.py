"""Sources of tasks: the data sets and simulators of the experiments."""
