"""The compilers' flags, which decide results: certificates of modules depend on this file."""

CPU_FLAGS = ["-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
GCC_FLAGS = ["-finline-limit=100000"]  # what a loop calls keeps it from being vectorised
GCC_FLAGS += [
    "-fno-thread-jumps"
]  # of selections one after the other, it makes masks of every path through them
CPU_FLAGS += GCC_FLAGS
CPU_ISA = {
    "AVX2": ["-mavx2", "-mfma", "-mf16c"],
    "AVX512": ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma", "-mf16c"],
}
CUDA_FLAGS = ["-O3", "--fmad=false"]  # every operation rounds once, as written
