"""dlt sources of the examples; the DAGs name them as text, so that no DAG file imports dlt."""
