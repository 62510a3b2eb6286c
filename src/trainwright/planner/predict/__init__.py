"""Predicts a run of any model, workload, cluster and software from datasheets and a few fitted numbers. No torch.

Quantities of a layout are scalars or NumPy arrays alike: one formula serves one layout and a search over thousands.
"""
