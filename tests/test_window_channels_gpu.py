"""Windows of tensors in channels_last on a GPU: the bits of those in NCHW, where eager lays the result."""

import functools
from typing import Any

import pytest
import torch
from kernels import DTYPES, generated
from test_window_channels import CHANNELS, bits, given, laid

from fusegen.runtime import channels_last, producers
from fusegen.runtime.layout_copy import Laid

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
NAMES = (
    *("kernelbench/conv2d_shift_hardswish_max_pool_mish", "kernelbench/conv2d_shift_tanh_shift_avg_pool"),
    *("windows/max_pool_of_relu", "windows/max_pool_of_shifted_tanh", "windows/min_pool"),
    *("windows/avg_pool_of_volumes", "kernelbench/volumes_max_pool", "kernelbench/images_avg_pool"),
)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_windows_have_the_bits_of_nchw(name: str, dtype: torch.dtype) -> None:
    kernels: Any = generated(name).KERNELS
    for layout in ("vectors", "odd", "unaligned"):
        call = given(kernels, CHANNELS[layout], dtype)
        tensors = [t.cuda() for t in call.tensors]
        with torch.no_grad():
            expected = kernels.of_tensors(*tensors, *call.params)
            found = kernels.of_tensors(*(laid(t, layout) for t in tensors), *call.params)
        assert torch.equal(bits(found), bits(expected)), layout
        last = {2: torch.channels_last, 3: torch.channels_last_3d}[kernels.rank]
        assert found.is_contiguous(memory_format=last)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES[:2])
def test_a_module_gives_what_it_gives_in_nchw(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for the order of the convolution's sums, without and with gradients."""
    torch.manual_seed(0)
    module: Any = generated(name)
    scalars = module.get_init_inputs()[3:]
    model = module.ModelNew(64, 96, 3, *scalars).to("cuda", dtype)
    x = torch.randn(16, 64, 98, 66, device="cuda", dtype=dtype)
    with torch.no_grad():
        found = model(x)
        chosen = channels_last.choice(model.conv, x, functools.partial(producers.convolved, model.conv))
    recorded = model(x)
    monkeypatch.setattr(module.KERNELS, "lays", channels_last.as_they_are)
    expected = model(x)
    assert torch.equal(recorded, expected)
    assert recorded.is_contiguous()
    rtol, atol = (1e-5, 2e-5) if dtype == torch.float32 else (2e-2, 2e-2)
    torch.testing.assert_close(found, expected, rtol=rtol, atol=atol)
    assert found.is_contiguous() is (chosen is Laid.AS_IT_IS)
