#pragma once
// BL_HD marks functions that device code may call too.

#if defined(__CUDACC__)
#define BL_HD __host__ __device__
#else
#define BL_HD
#endif
