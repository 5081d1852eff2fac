#pragma once
// Kernels of rows whose elements know their places: the number of an element in its row is behind what it reads.
namespace fusegen {
namespace {

template <class KERNEL>
struct Placed : KERNEL {};

template <class F>
constexpr bool IS_PLACED = false;
template <class KERNEL>
constexpr bool IS_PLACED<Placed<KERNEL>> = true;

}  // namespace
}  // namespace fusegen
