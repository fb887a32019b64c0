"""Reports: every table, figure and sentence of a page is a query over rows (docs/design/rows.md)."""

from harness.report.ledger import ledger_table
from harness.report.page import write_report
from harness.report.rows import checked
from harness.report.summary import difference_text, interval_text, summary_table, value_text

__all__ = [
    "checked",
    "difference_text",
    "interval_text",
    "ledger_table",
    "summary_table",
    "value_text",
    "write_report",
]
