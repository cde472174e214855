"""A plan as a workbook: live formulas over inputs that stand on one sheet."""
