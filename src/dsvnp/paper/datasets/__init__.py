"""Published data files: the catalogue, checksums and readers."""
