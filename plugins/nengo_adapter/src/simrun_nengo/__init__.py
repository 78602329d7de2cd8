"""The nengo and nengo_ocl adapters of simrun. Importing it imports nothing heavy."""
