#ifndef FUSEGEN_SHIM_H
#define FUSEGEN_SHIM_H
// In place of torch/csrc/stable/c/shim.h in builds for the CPU: the functions of PyTorch's stable C interface that
// kernels and bindings call, as that header declares them. To read it takes a compiler half a second.
#include <cstddef>
#include <cstdint>

struct AtenTensorOpaque;
using AtenTensorHandle = AtenTensorOpaque*;
class TorchLibraryOpaque;
using TorchLibraryHandle = TorchLibraryOpaque*;
using StableIValue = uint64_t;

extern "C" {
int32_t aoti_torch_call_dispatcher(const char* name, const char* overload, StableIValue* stack);
int32_t aoti_torch_copy_(AtenTensorHandle to, AtenTensorHandle from, int32_t non_blocking);
int32_t aoti_torch_create_tensor_from_blob(void* data, int64_t dim, const int64_t* size, const int64_t* stride,
                                           int64_t offset, int32_t dtype, int32_t type, int32_t index,
                                           AtenTensorHandle* made);
int32_t aoti_torch_delete_tensor_object(AtenTensorHandle tensor);
int32_t aoti_torch_device_type_cpu();
int32_t aoti_torch_device_type_cuda();
size_t aoti_torch_dtype_element_size(int32_t dtype);
int32_t aoti_torch_dtype_float32();
int32_t aoti_torch_dtype_float64();
int32_t aoti_torch_dtype_int64();
int32_t aoti_torch_dtype_uint8();
int32_t aoti_torch_empty_strided(int64_t dim, const int64_t* size, const int64_t* stride, int32_t dtype, int32_t type,
                                 int32_t index, AtenTensorHandle* made);
int32_t aoti_torch_get_data_ptr(AtenTensorHandle tensor, void** data);
int32_t aoti_torch_get_device_index(AtenTensorHandle tensor, int32_t* index);
int32_t aoti_torch_get_device_type(AtenTensorHandle tensor, int32_t* type);
int32_t aoti_torch_get_dim(AtenTensorHandle tensor, int64_t* dim);
int32_t aoti_torch_get_dtype(AtenTensorHandle tensor, int32_t* dtype);
int32_t aoti_torch_get_layout(AtenTensorHandle tensor, int32_t* layout);
int32_t aoti_torch_get_sizes(AtenTensorHandle tensor, int64_t** sizes);
int32_t aoti_torch_get_strides(AtenTensorHandle tensor, int64_t** strides);
int32_t aoti_torch_layout_strided();
int32_t aoti_torch_library_impl(TorchLibraryHandle library, const char* name,
                                void (*kernel)(StableIValue*, uint64_t, uint64_t));
int32_t aoti_torch_library_init_impl(const char* space, const char* key, const char* file, uint32_t line,
                                     TorchLibraryHandle* library);
int32_t torch_parallel_for(int64_t begin, int64_t end, int64_t grain, void (*task)(int64_t, int64_t, void*),
                           void* context);
}

#endif
