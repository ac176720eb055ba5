"""Cart-Pole system identification (Table 3)."""
