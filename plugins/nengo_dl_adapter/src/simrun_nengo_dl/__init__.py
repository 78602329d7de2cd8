"""The nengo_dl adapter of simrun. Importing it imports neither TensorFlow nor nengo."""
