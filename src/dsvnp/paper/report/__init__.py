"""Reports: tables, figures and pages made from results."""
