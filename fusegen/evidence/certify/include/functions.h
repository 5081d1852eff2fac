#pragma once
// All that a formula may call.
#include "interval_functions.h"
#include "dual.h"
#include "comparison.h"
#include "selections.h"
#include "quotients.h"
#include "dual_functions.h"
#include "forms.h"
