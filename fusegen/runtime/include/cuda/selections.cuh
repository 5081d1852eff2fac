#pragma once
#include "cuda/math.cuh"
#include "functions/selections.h"
