"""Published numbers and claims of the five papers, their tests on our rows, and the reports of tables and figures."""
