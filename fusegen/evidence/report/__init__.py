"""Tables in Markdown for README.md and docs/: of certificates, of measurements, of PyTorch's own bits.

`fusegen report accuracy|speed|eager|predicted` prints them.
"""
