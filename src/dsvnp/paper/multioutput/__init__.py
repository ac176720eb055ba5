"""Multi-output regression on SARCOS, Water Quality and SCM20d (Table 4)."""
