"""Sources of tasks: the data sets and simulators that models learn from."""
