#pragma once
// PyTorch copies from NCHW to channels_last where NVRTC compiles a module.
#define FUSEGEN_TRANSPOSED(NAME)
