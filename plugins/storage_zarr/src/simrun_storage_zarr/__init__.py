"""Zarr storage for simrun; the plugin is `simrun_storage_zarr.plugin`."""
