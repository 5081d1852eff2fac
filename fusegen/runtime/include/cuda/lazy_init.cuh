#pragma once
// Arrays that a kernel fills on first use, and others read.
#include "launcher.h"
#include <atomic>

namespace fusegen {
namespace {

// Has a kernel fill a table, unless it has been filled on this device. Others may read it when this returns; while a
// graph is captured nobody can wait, so that the graph fills it again each time.
template <class F, typename Kernel>
cudaError_t filled(const CallOf<F>& call, Kernel fill, int threads, std::atomic<uint64_t>& devices) {
  const uint64_t bit = uint64_t(1) << (call.device & 63);
  if (devices.load() & bit) return cudaSuccess;
  const auto stream = static_cast<cudaStream_t>(call.stream);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  cudaError_t error = cudaStreamIsCapturing(stream, &capture);
  if (error != cudaSuccess) return error;
  fill<<<(threads + 127) / 128, 128, 0, stream>>>(params<ParamsOf<F, double>>(call));
  error = cudaGetLastError();
  if (error != cudaSuccess || capture != cudaStreamCaptureStatusNone) return error;
  error = cudaStreamSynchronize(stream);
  if (error == cudaSuccess) devices |= bit;
  return error;
}

}  // namespace

// THEN where the scalars are F::DEFAULTS, else OTHERWISE.
template <class THEN, class OTHERWISE>
struct AtDefaults {
  template <class F, typename T>
  static cudaError_t launch(const CallOf<F>& call) {
    bool same = true;
    for (int k = 0; k < F::SCALARS; ++k) same = same && call.param[k] == F::DEFAULTS[k];
    return same ? THEN::template launch<F, T>(call) : OTHERWISE::template launch<F, T>(call);
  }
};

}  // namespace fusegen
