#pragma once
// The type PlainDouble, and its double-word form, which is the first word alone.
#include "cuda/exponential.cuh"

namespace fusegen {
namespace {
namespace plain_double {

struct PlainDouble {
  __host__ ANYWHERE PlainDouble(double v = 0) : v(v) {}
  ANYWHERE explicit operator double() const { return v; }
  ANYWHERE explicit operator float() const { return float(v); }
  friend ANYWHERE PlainDouble operator+(PlainDouble a, PlainDouble b) { return a.v + b.v; }
  friend ANYWHERE PlainDouble operator-(PlainDouble a, PlainDouble b) { return a.v - b.v; }
  friend ANYWHERE PlainDouble operator*(PlainDouble a, PlainDouble b) { return a.v * b.v; }
  friend ANYWHERE PlainDouble operator/(PlainDouble a, PlainDouble b) { return a.v / b.v; }
  friend ANYWHERE bool operator<(PlainDouble a, PlainDouble b) { return a.v < b.v; }
  friend ANYWHERE bool operator<=(PlainDouble a, PlainDouble b) { return a.v <= b.v; }
  friend ANYWHERE bool operator>(PlainDouble a, PlainDouble b) { return a.v > b.v; }
  friend ANYWHERE bool operator>=(PlainDouble a, PlainDouble b) { return a.v >= b.v; }
  friend ANYWHERE bool operator==(PlainDouble a, PlainDouble b) { return a.v == b.v; }
  friend ANYWHERE bool operator!=(PlainDouble a, PlainDouble b) { return a.v != b.v; }
  friend ANYWHERE PlainDouble operator-(PlainDouble a) { return -a.v; }
  double v;
};
ANYWHERE PlainDouble fabs(PlainDouble a) { return ::fabs(a.v); }
ANYWHERE PlainDouble sqrt(PlainDouble a) { return ::sqrt(a.v); }
ANYWHERE PlainDouble exp2(PlainDouble a) { return ::exp2(a.v); }
ANYWHERE PlainDouble log(PlainDouble a) { return ::log(a.v); }
ANYWHERE PlainDouble log2(PlainDouble a) { return ::log2(a.v); }
ANYWHERE PlainDouble sin(PlainDouble a) { return ::sin(a.v); }
ANYWHERE PlainDouble cos(PlainDouble a) { return ::cos(a.v); }
ANYWHERE PlainDouble erf(PlainDouble a) { return ::erf(a.v); }
ANYWHERE PlainDouble pow(PlainDouble a, PlainDouble b) { return ::pow(a.v, b.v); }
ANYWHERE PlainDouble fma(PlainDouble a, PlainDouble b, PlainDouble c) { return ::fma(a.v, b.v, c.v); }

}  // namespace plain_double

using plain_double::PlainDouble;

// Double-word values keep their first word.
template <>
struct DoubleWord<PlainDouble> {
  ANYWHERE DoubleWord(PlainDouble hi, PlainDouble = 0) : hi(hi), lo(0) {}
  ANYWHERE DoubleWord(double hi) : hi(hi), lo(0) {}
  ANYWHERE operator PlainDouble() const { return hi; }
  friend ANYWHERE DoubleWord operator+(DoubleWord a, DoubleWord b) { return a.hi + b.hi; }
  friend ANYWHERE DoubleWord operator+(DoubleWord a, double b) { return a.hi + b; }
  friend ANYWHERE DoubleWord operator+(double a, DoubleWord b) { return a + b.hi; }
  friend ANYWHERE DoubleWord operator-(DoubleWord a, DoubleWord b) { return a.hi - b.hi; }
  friend ANYWHERE DoubleWord operator-(DoubleWord a, double b) { return a.hi - b; }
  friend ANYWHERE DoubleWord operator-(double a, DoubleWord b) { return a - b.hi; }
  friend ANYWHERE DoubleWord operator*(DoubleWord a, DoubleWord b) { return a.hi * b.hi; }
  friend ANYWHERE DoubleWord operator*(DoubleWord a, double b) { return a.hi * b; }
  friend ANYWHERE DoubleWord operator*(double a, DoubleWord b) { return a * b.hi; }
  PlainDouble hi, lo;
};

}  // namespace
}  // namespace fusegen
