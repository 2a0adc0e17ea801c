"""Checked calls of HiGHS (linear and mixed-integer programs) and Clarabel (conic ones)."""
