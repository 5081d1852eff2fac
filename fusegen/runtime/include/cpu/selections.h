#pragma once
#include "cpu/math.h"
#include "functions/selections.h"
