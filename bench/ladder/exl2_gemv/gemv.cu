// A matrix product on packed EXL2 codes for 1..8 rows of activations, as ADR 12 proposes.
//
// Packed strip of 32 columns, along k: per group [16 B scale codes], then units of 32 slots x 32
// columns, 128*bits bytes as planes. Here every group has 128 slots, so group maxima are a table of
// half.
//
// Fragment order inside a unit (mma.m16n8k16, A = weights, row major): lane = 4*g + t; m-tile m in
// {0,1}, k-step s in {0,1}, register r in {0..3}, half h in {0,1}:
//   column = 16*m + g + 8*(r & 1),  slot = 16*s + 2*t + h + 8*(r >> 1)
// The 16 pairs of a lane are numbered p = 8*m + 4*s + r; pair p holds halves h = 0 (bits 0..15) and
// 1 (bits 16..31) of a register. Plane of width w, word i of a lane: pairs are stacked so that
// ((word >> (w * j)) & mask * 0x00010001) is pair (16 / (16 / w) ...) -- see plane_pair.
//
// nvcc -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a gemv.cu -o gemv

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(call)                                                         \
  do {                                                                      \
    cudaError_t e = (call);                                                 \
    if (e != cudaSuccess) {                                                 \
      std::printf("%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(e)); \
      std::exit(1);                                                         \
    }                                                                       \
  } while (0)

constexpr int kGroupSlots = 128;
constexpr int kUnitsPerGroup = kGroupSlots / 32;
constexpr int kWarps = 8;
#ifndef STAGE
#define STAGE 2048
#endif
constexpr int kStage = STAGE;  // bytes of a bulk copy

struct Args {
  const unsigned char* codes;  // strips one after another
  const __half* max;           // [groups]
  const __half* x;             // B fragments: [k / 32][lane][8 halves] (n = lane / 4)
  float* out;                  // [8][columns]
  int k, columns, splits;
};

__host__ __device__ constexpr long long group_bytes(int bits) {
  return 16 + kUnitsPerGroup * 128ll * bits;
}

__device__ __forceinline__ uint32_t smem_u32(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ void mbar_wait(uint32_t bar, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred p;\nLAB:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra "
      "LAB;\n}\n" ::"r"(bar),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// A warp's byte stream: segments (its share of one strip each) that lie apart in memory, seen
// through a ring in shared memory filled by bulk copies of up to kStage bytes. Copies run ahead
// over segments.
template <int kStages>
struct Ring {
  unsigned char* base;
  uint64_t* bars;
  const unsigned char* source;  // the producer's segment
  long long step;               // bytes between segments
  int segments;                 // left to issue
  int size;                     // bytes of a segment
  int offset = 0;
  int issued = 0;  // copies
  int have = 0;    // copies known to have arrived
  int first = 0;   // copies before the segment that is read now
  int lane;
  __device__ void init() {
    if (lane == 0) {
      for (int s = 0; s < kStages; ++s)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(smem_u32(bars + s)));
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      for (int s = 0; s < kStages; ++s) issue();
    }
    __syncwarp();
  }
  __device__ void issue() {  // lane 0 only
    if (segments <= 0) return;
    const int stage = issued % kStages;
    const uint32_t bytes = static_cast<uint32_t>(min(kStage, size - offset));
    const uint32_t bar = smem_u32(bars + stage);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(smem_u32(base + stage * kStage)),
        "l"(source + offset), "r"(bytes), "r"(bar)
        : "memory");
    ++issued;
    offset += kStage;
    if (offset >= size) offset = 0, --segments, source += step;
  }
  // Bytes [0, end) of the segment are readable after this.
  __device__ void need(int end) {
    const int copies = first + (end + kStage - 1) / kStage;
    while (have < copies) {
      mbar_wait(smem_u32(bars + have % kStages), (have / kStages) & 1);
      ++have;
    }
  }
  // Bytes [was, done) of the segment will not be read again; `last`: nor anything after them.
  __device__ void release(int was, int done, bool last) {
    const int copies = (last ? (done + kStage - 1) / kStage : done / kStage) - was / kStage;
    if (copies > 0) {
      __syncwarp();
      if (lane == 0) {
        for (int s = 0; s < copies; ++s) issue();
      }
      if (last) first += (done + kStage - 1) / kStage;
    }
  }
  template <class T>
  __device__ T read(int at) const {
    return *reinterpret_cast<const T*>(
        base + (static_cast<unsigned>(first * kStage + at) & (kStages * kStage - 1)));
  }
};

// The 16 registers (pairs) of a lane, as subnormal halves code * 2^-24.
template <int kBits, class R>
__device__ __forceinline__ void decode_unit(const R& ring, int at, int lane, uint32_t (&pair)[16]) {
  if constexpr (kBits == 8) {
#pragma unroll
    for (int q = 0; q < 2; ++q) {
      const uint4 v = ring.template read<uint4>(at + q * 512 + lane * 16);
      const uint32_t w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        pair[q * 8 + i * 2] = w[i] & 0x00ff00ffu;
        pair[q * 8 + i * 2 + 1] = (w[i] >> 8) & 0x00ff00ffu;
      }
    }
  } else {
    constexpr int kBase = kBits >= 4 ? 4 : 2;
    constexpr int kExtra = kBits - kBase;
    int plane = at;
    if constexpr (kBase == 4) {
      const uint4 v = ring.template read<uint4>(plane + lane * 16);
      const uint32_t w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) pair[i * 4 + j] = (w[i] >> (4 * j)) & 0x000f000fu;
      }
      plane += 512;
    } else {
      const uint2 v = ring.template read<uint2>(plane + lane * 8);
      const uint32_t w[2] = {v.x, v.y};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < 8; ++j) pair[i * 8 + j] = (w[i] >> (2 * j)) & 0x00030003u;
      }
      plane += 256;
    }
    if constexpr (kExtra == 1) {
      const uint32_t w = ring.template read<uint32_t>(plane + lane * 4);
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        const uint32_t bit = j >= kBase ? (w >> (j - kBase)) : (w << (kBase - j));
        pair[j] |= bit & (0x00010001u << kBase);
      }
    } else if constexpr (kExtra == 2) {
      const uint2 v = ring.template read<uint2>(plane + lane * 8);
      const uint32_t w[2] = {v.x, v.y};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const uint32_t bits =
              2 * j >= kBase ? (w[i] >> (2 * j - kBase)) : (w[i] << (kBase - 2 * j));
          pair[i * 8 + j] |= bits & (0x00030003u << kBase);
        }
      }
    }
  }
}

// CTAs walk strips; the warps of a CTA share a strip's groups.
template <int kBits, int kStages, bool kOne>
__global__ void __launch_bounds__(kWarps * 32) gemv_kernel(Args args) {
  extern __shared__ __align__(128) unsigned char smem[];
  __shared__ __align__(8) uint64_t bars[kWarps][kStages];
  constexpr int kRows = kOne ? 1 : 8;
  __shared__ float sums[2][kWarps][kRows][33];
  asm volatile("griddepcontrol.launch_dependents;");
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int groups = args.k / kGroupSlots, strips = args.columns / 32;
  const int g0 = groups * warp / kWarps, g1 = groups * (warp + 1) / kWarps;
  Ring<kStages> ring;
  ring.base = smem + warp * kStages * kStage;
  ring.bars = bars[warp];
  ring.lane = lane;
  ring.source =
      args.codes + (static_cast<long long>(blockIdx.x) * groups + g0) * group_bytes(kBits);
  ring.step = static_cast<long long>(gridDim.x) * groups * group_bytes(kBits);
  ring.size = (g1 - g0) * static_cast<int>(group_bytes(kBits));
  ring.segments = ring.size == 0 ? 0 : (strips - blockIdx.x + gridDim.x - 1) / gridDim.x;
  ring.init();
  asm volatile("griddepcontrol.wait;" ::: "memory");
  uint4* x = reinterpret_cast<uint4*>(smem + kWarps * kStages * kStage);
  const int x_words = args.k / 32 * (kOne ? 4 : 32);
  for (int i = threadIdx.x; i < x_words; i += kWarps * 32)
    x[i] = reinterpret_cast<const uint4*>(args.x)[i];
  __syncthreads();

  constexpr uint32_t kZero = (1u << (kBits - 1)) * 0x00010001u;
  const uint32_t zero[4] = {kZero, kZero, kZero, kZero};
  const int quarter = lane / 4;
  int turn = 0;
  const float square = static_cast<float>((lane % 16 + 1) * (lane % 16 + 1));
  const float my_max =
      lane < g1 - g0
          ? __half2float(__float2half_rn(__half2float(args.max[g0 + lane]) * (1.0f / 256)))
          : 0.0f;
  for (int strip = blockIdx.x; strip < strips; strip += gridDim.x, turn ^= 1) {
    float total[2][4] = {};
    int at = 0, was = 0;
    for (int g = g0; g < g1; ++g) {
      ring.need(at + static_cast<int>(group_bytes(kBits)));
      const uint4 nv = ring.template read<uint4>(at);
      const uint32_t nibbles[4] = {nv.x, nv.y, nv.z, nv.w};
      // Lane i computes the scale of code i % 16; four shuffles hand them out.
      const float s = __shfl_sync(~0u, my_max, g - g0);
      const float my_scale = __half2float(__float2half_rn(square * s)) * 0x1p24f;
      at += 16;
      float acc[2][4] = {};
      float shift[4] = {};
#pragma unroll
      for (int u = 0; u < kUnitsPerGroup; ++u) {
        uint4 b = make_uint4(0, 0, 0, 0);
        if (kOne) {
          if (lane < 4) b = x[(g * kUnitsPerGroup + u) * 4 + lane];
        } else {
          b = x[(g * kUnitsPerGroup + u) * 32 + lane];
        }
        uint32_t pair[16];
        decode_unit<kBits>(ring, at, lane, pair);
        at += 128 * kBits;
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          const uint32_t a0[4] = {pair[m * 8], pair[m * 8 + 1], pair[m * 8 + 2], pair[m * 8 + 3]};
          const uint32_t a1[4] = {pair[m * 8 + 4], pair[m * 8 + 5], pair[m * 8 + 6],
                                  pair[m * 8 + 7]};
          mma(acc[m], a0, b.x, b.y);
          mma(acc[m], a1, b.z, b.w);
        }
        mma(shift, zero, b.x, b.y);
        mma(shift, zero, b.z, b.w);
      }
      ring.release(was, at, g + 1 == g1);
      was = at;
#pragma unroll
      for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const uint32_t n = (nibbles[2 * m + h] >> (4 * quarter)) & 15;
          const float scale = __shfl_sync(~0u, my_scale, n);
          total[m][2 * h] += scale * (acc[m][2 * h] - shift[2 * h]);
          if (!kOne) total[m][2 * h + 1] += scale * (acc[m][2 * h + 1] - shift[2 * h + 1]);
        }
      }
    }
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int n = 2 * (lane % 4) + (i & 1);
        if (n < kRows) sums[turn][warp][n][16 * m + 8 * (i >> 1) + lane / 4] = total[m][i];
      }
    }
    __syncthreads();
    const int n = threadIdx.x / 32, c = threadIdx.x % 32;
    if (n < kRows) {
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += sums[turn][w][n][c];
      args.out[n * static_cast<long long>(args.columns) + strip * 32 + c] = sum;
    }
  }
}

// ---- host: packing of one strip group ----
int pair_of(int slot, int column, int& lane, int& half) {
  const int m = column / 16, g = column % 8, r_low = (column % 16) / 8;
  const int s = slot / 16, in = slot % 16, r_high = in / 8, t = (in % 8) / 2;
  half = in % 2;
  lane = 4 * g + t;
  return 8 * m + 4 * s + r_low + 2 * r_high;
}
void put(unsigned char* plane, int lane, int words, int width, int pair, int half, unsigned value) {
  const int per_word = 16 / width;
  uint32_t word;
  unsigned char* p = plane + (lane * words + pair / per_word) * 4;
  std::memcpy(&word, p, 4);
  word |= value << (width * (pair % per_word) + 16 * half);
  std::memcpy(p, &word, 4);
}
void pack_unit(unsigned char* unit, int bits,
               const unsigned char codes[32][32] /* [slot][column] */) {
  std::memset(unit, 0, 128 * bits);
  for (int slot = 0; slot < 32; ++slot) {
    for (int column = 0; column < 32; ++column) {
      int lane, half;
      const int p = pair_of(slot, column, lane, half);
      const unsigned q = codes[slot][column];
      if (bits == 8) {
        put(unit + (p / 8) * 512, lane, 4, 8, p % 8, half, q);
      } else {
        const int base = bits >= 4 ? 4 : 2, extra = bits - base;
        put(unit, lane, base, base, p, half, q & ((1 << base) - 1));
        if (extra > 0) put(unit + 128 * base, lane, extra, extra, p, half, q >> base);
      }
    }
  }
}

template <class F>
float time_ms(F run, int reps = 20) {
  cudaEvent_t a, b;
  CHECK(cudaEventCreate(&a));
  CHECK(cudaEventCreate(&b));
  for (int i = 0; i < 3; ++i) run();
  std::vector<float> ms(reps);
  for (float& t : ms) {
    CHECK(cudaEventRecord(a));
    run();
    CHECK(cudaEventRecord(b));
    CHECK(cudaEventSynchronize(b));
    CHECK(cudaEventElapsedTime(&t, a, b));
  }
  std::sort(ms.begin(), ms.end());
  return ms[reps / 2];
}

template <int kBits, int kStages, bool kOne>
void launch(const Args& args, cudaStream_t stream) {
  auto kernel = gemv_kernel<kBits, kStages, kOne>;
  const int smem = kWarps * kStages * kStage + args.k * (kOne ? 2 : 16);
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem));
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(std::min(args.columns / 32, 132 * args.splits));
  config.blockDim = dim3(kWarps * 32);
  config.dynamicSmemBytes = smem;
  config.stream = stream;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  CHECK(cudaLaunchKernelEx(&config, kernel, args));
}

template <int kBits>
void verify() {
  const int k = 1024, columns = 64, groups = k / kGroupSlots;
  std::vector<unsigned char> codes(k * columns), packed(columns / 32 * groups * group_bytes(kBits)),
      nib(groups * columns);
  std::vector<__half> max(groups), x(8 * k), frag(8 * k);
  for (auto& c : codes) c = static_cast<unsigned char>(rand() & ((1 << kBits) - 1));
  for (auto& n : nib) n = static_cast<unsigned char>(rand() & 15);
  for (auto& m : max) m = __float2half(0.001f + 0.05f * static_cast<float>(rand()) / RAND_MAX);
  for (auto& v : x) v = __float2half(static_cast<float>(rand()) / RAND_MAX - 0.5f);
  for (int strip = 0; strip < columns / 32; ++strip) {
    for (int g = 0; g < groups; ++g) {
      unsigned char* p =
          packed.data() + (static_cast<long long>(strip) * groups + g) * group_bytes(kBits);
      for (int c = 0; c < 32; c += 2) {
        p[c / 2] = static_cast<unsigned char>(nib[g * columns + strip * 32 + c] |
                                              nib[g * columns + strip * 32 + c + 1] << 4);
      }
      for (int u = 0; u < kUnitsPerGroup; ++u) {
        unsigned char unit[32][32];
        for (int s = 0; s < 32; ++s) {
          for (int c = 0; c < 32; ++c)
            unit[s][c] = codes[(g * kGroupSlots + u * 32 + s) * columns + strip * 32 + c];
        }
        pack_unit(p + 16 + u * 128 * kBits, kBits, unit);
      }
    }
  }
  for (int u = 0; u < k / 32; ++u) {
    for (int lane = 0; lane < 32; ++lane) {
      const int n = lane / 4, t = lane % 4;
      for (int i = 0; i < 8; ++i) {
        const int slot = 16 * (i / 4) + 8 * ((i / 2) % 2) + 2 * t + i % 2;
        frag[(u * 32 + lane) * 8 + i] = x[n * k + u * 32 + slot];
      }
    }
  }
  Args args{};
  unsigned char* d_codes;
  __half *d_max, *d_x;
  CHECK(cudaMalloc(&d_codes, packed.size()));
  CHECK(cudaMalloc(&d_max, groups * 2));
  CHECK(cudaMalloc(&d_x, frag.size() * 2));
  CHECK(cudaMalloc(&args.out, 8 * columns * 4));
  CHECK(cudaMemcpy(d_codes, packed.data(), packed.size(), cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(d_max, max.data(), groups * 2, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(d_x, frag.data(), frag.size() * 2, cudaMemcpyHostToDevice));
  args.codes = d_codes;
  args.max = d_max;
  args.x = d_x;
  args.k = k;
  args.columns = columns;
  args.splits = 1;
  launch<kBits, 8, false>(args, 0);
  std::vector<float> out(8 * columns);
  CHECK(cudaMemcpy(out.data(), args.out, out.size() * 4, cudaMemcpyDeviceToHost));
  double worst = 0, norm = 0;
  for (int n = 0; n < 8; ++n) {
    for (int c = 0; c < columns; ++c) {
      double y = 0;
      for (int i = 0; i < k; ++i) {
        const int g = i / kGroupSlots, m = (nib[g * columns + c] + 1) * (nib[g * columns + c] + 1);
        const float s = __half2float(__float2half_rn(__half2float(max[g]) / 256));
        const float scale = __half2float(__float2half_rn(static_cast<float>(m) * s));
        y += static_cast<double>(__half2float(x[n * k + i])) *
             (codes[i * columns + c] - (1 << (kBits - 1))) * scale;
      }
      worst = std::max(worst, std::abs(y - out[n * columns + c]));
      norm = std::max(norm, std::abs(y));
    }
  }
  std::printf("%d bits: worst error %.2e of %.2e\n", kBits, worst, norm);
}

template <int kBits, int kStages, bool kOne>
void bench(double peak, int per_sm) {
  struct Shape {
    int k, columns, splits;
  };
  const Shape shapes[4] = {
      {4096, 6144, per_sm}, {4096, 4096, per_sm}, {4096, 28672, per_sm}, {14336, 4096, per_sm}};
  std::vector<Args> ops;
  double bytes = 0;
  __half* x;
  CHECK(cudaMalloc(&x, 14336 * 16));
  CHECK(cudaMemset(x, 0x11, 14336 * 16));
  float* out;
  CHECK(cudaMalloc(&out, 8ll * 28672 * 4 * 4));
  __half* max;
  CHECK(cudaMalloc(&max, 1024));
  CHECK(cudaMemset(max, 0x22, 1024));
  std::vector<void*> allocated;
  const int blocks = 32;
  for (int b = 0; b < blocks; ++b) {
    for (const Shape& s : shapes) {
      const long long size =
          static_cast<long long>(s.columns / 32) * (s.k / kGroupSlots) * group_bytes(kBits);
      unsigned char* p;
      CHECK(cudaMalloc(&p, size));
      CHECK(cudaMemset(p, 0x5a ^ b, size));
      allocated.push_back(p);
      ops.push_back({p, max, x, out, s.k, s.columns, s.splits});
      bytes += size;
    }
  }
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  auto run_graph = [&](int first, int step) {
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (std::size_t i = first; i < ops.size(); i += step)
      launch<kBits, kStages, kOne>(ops[i], stream);
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(stream, &graph));
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    const float t = time_ms([&] { CHECK(cudaGraphLaunch(exec, 0)); });
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    return t;
  };
  const float all = run_graph(0, 1);
  std::printf(
      "%d bits, rows %d, ctas %d, ring %d x %d: %7.1f us for 32 blocks, %5.2f TB/s, %5.1f %% | "
      "alone:",
      kBits, kOne ? 1 : 8, per_sm, kStages, kStage, all * 1e3, bytes / all * 1e-9,
      100 * bytes / (all * 1e-3) / peak);
  for (int i = 0; i < 4; ++i) {
    const Shape& s = shapes[i];
    const double size =
        static_cast<double>(s.columns / 32) * (s.k / kGroupSlots) * group_bytes(kBits) * blocks;
    const float t = run_graph(i, 4);
    std::printf(" %4.1f%%", 100 * size / (t * 1e-3) / peak);
  }
  std::printf("\n");
  for (void* p : allocated) CHECK(cudaFree(p));
}

// One kernel without a graph, for a profiler.
template <int kBits, int kStages>
void plain(int k, int columns, int per_sm) {
  Args args{};
  unsigned char* codes;
  __half *max, *x;
  CHECK(cudaMalloc(&codes,
                   static_cast<long long>(columns / 32) * (k / kGroupSlots) * group_bytes(kBits)));
  CHECK(cudaMalloc(&max, 1024));
  CHECK(cudaMalloc(&x, k * 16));
  CHECK(cudaMalloc(&args.out, 8ll * columns * 4));
  args.codes = codes;
  args.max = max;
  args.x = x;
  args.k = k;
  args.columns = columns;
  args.splits = per_sm;
  for (int i = 0; i < 3; ++i) {
    launch<kBits, kStages, true>(args, 0);
    CHECK(cudaDeviceSynchronize());
  }
}

int main(int argc, char**) {
  if (argc > 1) {
    plain<4, 4>(4096, 28672, 2);
    return 0;
  }
  verify<2>();
  verify<3>();
  verify<4>();
  verify<5>();
  verify<6>();
  verify<8>();
  const double peak = 4.26e12;
  bench<4, 4, true>(peak, 1);
  bench<4, 4, true>(peak, 2);
  bench<4, 4, true>(peak, 3);
  bench<4, 8, true>(peak, 1);
  bench<2, 4, true>(peak, 2);
  bench<3, 4, true>(peak, 2);
  bench<5, 4, true>(peak, 2);
  bench<6, 4, true>(peak, 2);
  bench<8, 8, true>(peak, 1);
  return 0;
}
