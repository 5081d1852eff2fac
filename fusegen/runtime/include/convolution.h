#ifndef FUSEGEN_CONVOLUTION_H
#define FUSEGEN_CONVOLUTION_H
// The arguments of a convolution that is one kernel with what comes behind it.
#include "call.h"

namespace fusegen {

// A convolution of dense tensors, NCHW: images of so many channels, and weights for each pair of an output channel and
// an input channel. The call of the kernel behind it has its operands and its output by batch, channel, row and column.
struct Convolution {
  const void *x, *weight;
  int channels, height, width, out_channels, out_height, out_width, kernel_height, kernel_width;
  int stride_y, stride_x, padding_y, padding_x;
};

}  // namespace fusegen

#endif
