"""Files: tables as CSV or Parquet, read and written whole or part by part."""
