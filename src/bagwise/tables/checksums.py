"""MD5 sums of texts, in hexadecimal digits, in every engine that has them: Ibis knows those of few engines only."""

from __future__ import annotations

from typing import Any

import ibis


@ibis.udf.scalar.builtin(name="md5")
def _digits(text: str) -> str:  # type: ignore[empty-body]
    """In DuckDB, Spark, Databricks, Snowflake, PostgreSQL, MySQL."""


@ibis.udf.scalar.builtin(name="md5")
def _bytes(text: str) -> bytes:  # type: ignore[empty-body]
    """In BigQuery."""


@ibis.udf.scalar.builtin(name="MD5")
def _bytes_in_clickhouse(text: str) -> bytes:  # type: ignore[empty-body]
    """In ClickHouse, where case counts."""


@ibis.udf.scalar.builtin(name="md5")
def _bytes_of_bytes(text: bytes) -> bytes:  # type: ignore[empty-body]
    """In Trino."""


@ibis.udf.scalar.builtin(name="to_utf8")
def _to_utf8(text: str) -> bytes:  # type: ignore[empty-body]
    """In Trino."""


@ibis.udf.scalar.builtin(name="to_hex")
def _to_hex(code: bytes) -> str:  # type: ignore[empty-body]
    """In BigQuery and Trino."""


@ibis.udf.scalar.builtin(name="hex")
def _hex(code: bytes) -> str:  # type: ignore[empty-body]
    """In ClickHouse."""


def md5(text: Any, engine: str | None = None) -> Any:
    """The 32 digits of the MD5 sum of a column of texts in UTF-8.

    engine: Ibis's name of the engine; None for the one that holds the column.
    """
    if engine is None:
        backends, _ = text._find_backends()
        engine = backends[0].name if backends else "duckdb"
    if engine == "bigquery":
        return _to_hex(_bytes(text)).lower()
    if engine == "trino":
        return _to_hex(_bytes_of_bytes(_to_utf8(text))).lower()
    if engine == "clickhouse":
        return _hex(_bytes_in_clickhouse(text)).lower()
    if engine in ("exasol", "mssql"):
        return text.hexdigest("md5")
    return _digits(text)
