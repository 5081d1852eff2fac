#pragma once
// The type PlainDouble, and its double-word form, which is the high word alone.
#include "cuda/exponential.cuh"

namespace fusegen {
namespace {
namespace plain_double {

struct PlainDouble {
  __host__ HOST_DEVICE PlainDouble(double v = 0) : v(v) {}
  HOST_DEVICE explicit operator double() const { return v; }
  HOST_DEVICE explicit operator float() const { return float(v); }
  friend HOST_DEVICE PlainDouble operator+(PlainDouble a, PlainDouble b) { return a.v + b.v; }
  friend HOST_DEVICE PlainDouble operator-(PlainDouble a, PlainDouble b) { return a.v - b.v; }
  friend HOST_DEVICE PlainDouble operator*(PlainDouble a, PlainDouble b) { return a.v * b.v; }
  friend HOST_DEVICE PlainDouble operator/(PlainDouble a, PlainDouble b) { return a.v / b.v; }
  friend HOST_DEVICE bool operator<(PlainDouble a, PlainDouble b) { return a.v < b.v; }
  friend HOST_DEVICE bool operator<=(PlainDouble a, PlainDouble b) { return a.v <= b.v; }
  friend HOST_DEVICE bool operator>(PlainDouble a, PlainDouble b) { return a.v > b.v; }
  friend HOST_DEVICE bool operator>=(PlainDouble a, PlainDouble b) { return a.v >= b.v; }
  friend HOST_DEVICE bool operator==(PlainDouble a, PlainDouble b) { return a.v == b.v; }
  friend HOST_DEVICE bool operator!=(PlainDouble a, PlainDouble b) { return a.v != b.v; }
  friend HOST_DEVICE PlainDouble operator-(PlainDouble a) { return -a.v; }
  double v;
};
HOST_DEVICE PlainDouble fabs(PlainDouble a) { return ::fabs(a.v); }
HOST_DEVICE PlainDouble sqrt(PlainDouble a) { return ::sqrt(a.v); }
HOST_DEVICE PlainDouble exp2(PlainDouble a) { return ::exp2(a.v); }
HOST_DEVICE PlainDouble log(PlainDouble a) { return ::log(a.v); }
HOST_DEVICE PlainDouble log2(PlainDouble a) { return ::log2(a.v); }
HOST_DEVICE PlainDouble sin(PlainDouble a) { return ::sin(a.v); }
HOST_DEVICE PlainDouble cos(PlainDouble a) { return ::cos(a.v); }
HOST_DEVICE PlainDouble erf(PlainDouble a) { return ::erf(a.v); }
HOST_DEVICE PlainDouble pow(PlainDouble a, PlainDouble b) { return ::pow(a.v, b.v); }
HOST_DEVICE PlainDouble fma(PlainDouble a, PlainDouble b, PlainDouble c) { return ::fma(a.v, b.v, c.v); }

}  // namespace plain_double

using plain_double::PlainDouble;

// Double-word values keep their high word.
template <>
struct DoubleWord<PlainDouble> {
  HOST_DEVICE DoubleWord(PlainDouble hi, PlainDouble = 0) : hi(hi), lo(0) {}
  HOST_DEVICE DoubleWord(double hi) : hi(hi), lo(0) {}
  HOST_DEVICE operator PlainDouble() const { return hi; }
  friend HOST_DEVICE DoubleWord operator+(DoubleWord a, DoubleWord b) { return a.hi + b.hi; }
  friend HOST_DEVICE DoubleWord operator+(DoubleWord a, double b) { return a.hi + b; }
  friend HOST_DEVICE DoubleWord operator+(double a, DoubleWord b) { return a + b.hi; }
  friend HOST_DEVICE DoubleWord operator-(DoubleWord a, DoubleWord b) { return a.hi - b.hi; }
  friend HOST_DEVICE DoubleWord operator-(DoubleWord a, double b) { return a.hi - b; }
  friend HOST_DEVICE DoubleWord operator-(double a, DoubleWord b) { return a - b.hi; }
  friend HOST_DEVICE DoubleWord operator*(DoubleWord a, DoubleWord b) { return a.hi * b.hi; }
  friend HOST_DEVICE DoubleWord operator*(DoubleWord a, double b) { return a.hi * b; }
  friend HOST_DEVICE DoubleWord operator*(double a, DoubleWord b) { return a * b.hi; }
  PlainDouble hi, lo;
};

}  // namespace
}  // namespace fusegen
