"""Rows: a function that reduces them, compared with exact values over drawn rows.

families       how rows are drawn: their kinds, and their lengths
row_balls      the formula as declared and its gradients, in ball arithmetic; ball_rows: of many rows
row_subject    the module of a spec with rows
row_evaluator  all that is judged of one, on one device
row_relations  other calls, and special values
"""
