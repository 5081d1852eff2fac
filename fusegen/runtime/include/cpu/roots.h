#pragma once
#include "cpu/math.h"
#include "functions/roots.h"
