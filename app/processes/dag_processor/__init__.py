"""The dag processor: keeps the database to what the pipelines folder declares."""
