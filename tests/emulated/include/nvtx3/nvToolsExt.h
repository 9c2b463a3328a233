// Stands in for NVTX: ../../profiler.cpp keeps the names.
#pragma once

int nvtxRangePushA(const char* name);
int nvtxRangePop();
