"""Image classification and out-of-distribution detection (Table A.2, Fig. 4)."""
