"""Bags of rows as estimators read them: in memory or in shards on disk, columns as numbers."""
