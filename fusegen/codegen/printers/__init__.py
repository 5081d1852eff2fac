"""Printers: the kernel IR as C++ and CUDA C++, and a formula as mathematics writes it."""
