"""HDF5 storage for simrun; the plugin is `simrun_storage_hdf5.plugin`."""
