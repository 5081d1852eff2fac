#pragma once
#include "cuda/math.cuh"
#include "functions/roots.h"
