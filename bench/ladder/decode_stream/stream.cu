// How fast can the weights of one decode step be read, when every matrix product ends in a
// grid-wide dependency? Sizes of an 8B model at 4.2 bits (bytes of the packed matrices):
// q+k+v 12.6 MB, o 8.4 MB, gate+up 58.7 MB, down 29.4 MB, 32 blocks, then a 427 MB head.
//
// Steps of the ladder, each prints the time of one token and the share of a plain big read:
//   graph      one kernel an op in a CUDA graph
//   graph+pdl  the same with programmatic dependent launch
//   pdl+ring   that, but only a ring of bulk copies may run ahead of the dependency, sums may not
//   barrier    one persistent kernel, a grid barrier an op, loads start after the barrier
//   stream     one persistent kernel; each warp keeps a ring of bulk copies in flight that runs
//   ahead
//              over the barriers, because weights depend on nothing
// The arithmetic is an xor, so this is the ceiling for any kernel of that structure.
//
// nvcc -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a stream.cu -o stream

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                         \
  do {                                                                      \
    cudaError_t e = (call);                                                 \
    if (e != cudaSuccess) {                                                 \
      std::printf("%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(e)); \
      std::exit(1);                                                         \
    }                                                                       \
  } while (0)

struct Op {
  const uint4* data;
  long long bytes;
};
constexpr int kMaxOps = 32 * 5 + 1;
__constant__ Op ops_dev[kMaxOps];

__device__ __forceinline__ uint4 load_stream(const uint4* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}
__device__ __forceinline__ unsigned fold(uint4 v) { return v.x ^ v.y ^ v.z ^ v.w; }

template <int kUnroll>
__device__ unsigned read_slice(const uint4* data, long long count, long long first,
                               long long step) {
  unsigned acc = 0;
  long long i = first;
  for (; i + (kUnroll - 1) * step < count; i += kUnroll * step) {
    uint4 v[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) v[u] = load_stream(data + i + u * step);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) acc ^= fold(v[u]);
  }
  for (; i < count; i += step) acc ^= fold(load_stream(data + i));
  return acc;
}

template <bool kPdl>
__global__ void __launch_bounds__(512)
    op_kernel(const uint4* data, long long count, unsigned* out) {
  if (kPdl) {
    asm volatile("griddepcontrol.launch_dependents;");
  }
  unsigned acc = read_slice<8>(data, count, blockIdx.x * 512ll + threadIdx.x, gridDim.x * 512ll);
  if (kPdl) asm volatile("griddepcontrol.wait;" ::: "memory");
  if (acc == 0x12345678u) out[0] = acc;
}

__device__ __forceinline__ void grid_barrier(unsigned* counter, unsigned target) {
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
    unsigned seen;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
    } while (seen < target);
  }
  __syncthreads();
}

__global__ void __launch_bounds__(512, 1)
    barrier_kernel(int ops, unsigned* counter, unsigned* out, bool loads) {
  unsigned acc = 0;
  for (int o = 0; o < ops; ++o) {
    if (loads) {
      acc ^= read_slice<8>(ops_dev[o].data, ops_dev[o].bytes / 16, blockIdx.x * 512ll + threadIdx.x,
                           gridDim.x * 512ll);
    }
    grid_barrier(counter, gridDim.x * (o + 1));
  }
  if (acc == 0x12345678u) out[0] = acc;
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

// Every warp owns kStages chunks of kChunk bytes and walks its share of all ops in order.
template <int kWarps, int kStages, int kChunk>
__global__ void __launch_bounds__(kWarps * 32, 1)
    stream_kernel(int ops, unsigned* counter, unsigned* out) {
  extern __shared__ __align__(128) unsigned char smem[];
  __shared__ __align__(8) uint64_t bars[kWarps][kStages];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  unsigned char* ring = smem + warp * kStages * kChunk;
  const long long worker = static_cast<long long>(warp) * gridDim.x + blockIdx.x;
  const long long workers = static_cast<long long>(gridDim.x) * kWarps;
  if (lane == 0) {
    for (int s = 0; s < kStages; ++s)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(smem_u32(&bars[warp][s])));
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncwarp();
  // The producer's place in the walk.
  int p_op = 0;
  long long p_chunk = worker;
  auto issue = [&](int stage) {
    while (p_op < ops && p_chunk * kChunk >= ops_dev[p_op].bytes) {
      ++p_op;
      p_chunk = worker;
    }
    if (p_op >= ops) return;
    const long long offset = p_chunk * kChunk;
    const unsigned bytes =
        static_cast<unsigned>(min(static_cast<long long>(kChunk), ops_dev[p_op].bytes - offset));
    const uint32_t bar = smem_u32(&bars[warp][stage]);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(smem_u32(ring + stage * kChunk)),
        "l"(reinterpret_cast<const unsigned char*>(ops_dev[p_op].data) + offset), "r"(bytes),
        "r"(bar)
        : "memory");
    p_chunk += workers;
  };
  if (lane == 0) {
    for (int s = 0; s < kStages; ++s) issue(s);
  }
  unsigned acc = 0;
  int stage = 0;
  uint32_t phase = 0;
  for (int o = 0; o < ops; ++o) {
    const long long bytes = ops_dev[o].bytes;
    for (long long c = worker; c * kChunk < bytes; c += workers) {
      mbar_wait(smem_u32(&bars[warp][stage]), phase);
      const unsigned size =
          static_cast<unsigned>(min(static_cast<long long>(kChunk), bytes - c * kChunk));
      const uint4* chunk = reinterpret_cast<const uint4*>(ring + stage * kChunk);
      for (unsigned i = lane; i < size / 16; i += 32) acc ^= fold(chunk[i]);
      __syncwarp();
      if (lane == 0) issue(stage);
      if (++stage == kStages) stage = 0, phase ^= 1;
    }
    grid_barrier(counter, gridDim.x * (o + 1));
  }
  if (acc == 0x12345678u) out[0] = acc;
}

// One kernel an op with dependent launch: the ring fills before the wait, the sums start after it,
// as they must when the activations come from the previous op.
template <int kWarps, int kStages, int kChunk>
__global__ void __launch_bounds__(kWarps * 32)
    ring_kernel(const unsigned char* data, long long bytes, unsigned* out) {
  extern __shared__ __align__(128) unsigned char smem[];
  __shared__ __align__(8) uint64_t bars[kWarps][kStages];
  asm volatile("griddepcontrol.launch_dependents;");
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  unsigned char* ring = smem + warp * kStages * kChunk;
  const long long worker = static_cast<long long>(warp) * gridDim.x + blockIdx.x;
  const long long workers = static_cast<long long>(gridDim.x) * kWarps;
  if (lane == 0) {
    for (int s = 0; s < kStages; ++s)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(smem_u32(&bars[warp][s])));
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncwarp();
  long long p_chunk = worker;
  auto issue = [&](int stage) {
    const long long offset = p_chunk * kChunk;
    if (offset >= bytes) return;
    const unsigned size =
        static_cast<unsigned>(min(static_cast<long long>(kChunk), bytes - offset));
    const uint32_t bar = smem_u32(&bars[warp][stage]);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(size)
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(smem_u32(ring + stage * kChunk)),
        "l"(data + offset), "r"(size), "r"(bar)
        : "memory");
    p_chunk += workers;
  };
  if (lane == 0) {
    for (int s = 0; s < kStages; ++s) issue(s);
  }
  asm volatile("griddepcontrol.wait;" ::: "memory");
  unsigned acc = 0;
  int stage = 0;
  uint32_t phase = 0;
  for (long long c = worker; c * kChunk < bytes; c += workers) {
    mbar_wait(smem_u32(&bars[warp][stage]), phase);
    const unsigned size =
        static_cast<unsigned>(min(static_cast<long long>(kChunk), bytes - c * kChunk));
    const uint4* chunk = reinterpret_cast<const uint4*>(ring + stage * kChunk);
    for (unsigned i = lane; i < size / 16; i += 32) acc ^= fold(chunk[i]);
    __syncwarp();
    if (lane == 0) issue(stage);
    if (++stage == kStages) stage = 0, phase ^= 1;
  }
  if (acc == 0x12345678u) out[0] = acc;
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

template <bool kPdl>
float graph_time(const std::vector<Op>& ops, int ctas, unsigned* out) {
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (const Op& op : ops) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(ctas);
    config.blockDim = dim3(512);
    config.stream = stream;
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = kPdl ? 1 : 0;
    CHECK(cudaLaunchKernelEx(&config, op_kernel<kPdl>, op.data, op.bytes / 16, out));
  }
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  return time_ms([&] { CHECK(cudaGraphLaunch(exec, 0)); });
}

template <int kWarps, int kStages, int kChunk>
float ring_time(const std::vector<Op>& ops, int ctas, unsigned* out) {
  auto kernel = ring_kernel<kWarps, kStages, kChunk>;
  const int smem = kWarps * kStages * kChunk;
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (const Op& op : ops) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(ctas);
    config.blockDim = dim3(kWarps * 32);
    config.dynamicSmemBytes = smem;
    config.stream = stream;
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    CHECK(cudaLaunchKernelEx(&config, kernel, reinterpret_cast<const unsigned char*>(op.data),
                             op.bytes, out));
  }
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  return time_ms([&] { CHECK(cudaGraphLaunch(exec, 0)); });
}

template <int kWarps, int kStages, int kChunk>
float stream_time(int ops, int sms, unsigned* counter, unsigned* out) {
  auto kernel = stream_kernel<kWarps, kStages, kChunk>;
  const int smem = kWarps * kStages * kChunk;
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem));
  const float t = time_ms([&] {
    CHECK(cudaMemsetAsync(counter, 0, 4));
    kernel<<<sms, kWarps * 32, smem>>>(ops, counter, out);
    CHECK(cudaGetLastError());
  });
  CHECK(cudaDeviceSynchronize());
  return t;
}

int main() {
  cudaDeviceProp prop;
  CHECK(cudaGetDeviceProperties(&prop, 0));
  const int sms = prop.multiProcessorCount;
  const long long mb = 1000 * 1000;
  const long long sizes[5] = {12583 * 1000ll, 0, 8389 * 1000ll, 58720 * 1000ll,
                              29360 * 1000ll};  // 0: attention
  std::vector<long long> bytes;
  for (int b = 0; b < 32; ++b) {
    for (long long s : sizes) bytes.push_back(s / 16 * 16);
  }
  bytes.push_back(427 * mb / 16 * 16);
  long long total = 0;
  for (long long b : bytes) total += (b + 4095) / 4096 * 4096;
  unsigned char* memory;
  CHECK(cudaMalloc(&memory, total));
  {
    std::vector<unsigned> noise(1 << 22);
    for (auto& n : noise) n = static_cast<unsigned>(rand()) * 2654435761u;
    for (long long at = 0; at < total; at += static_cast<long long>(noise.size()) * 4) {
      CHECK(cudaMemcpy(memory + at, noise.data(), std::min<long long>(noise.size() * 4, total - at),
                       cudaMemcpyHostToDevice));
    }
  }
  std::vector<Op> ops;
  long long at = 0, weight_bytes = 0;
  for (long long b : bytes) {
    ops.push_back({reinterpret_cast<const uint4*>(memory + at), b});
    at += (b + 4095) / 4096 * 4096;
    weight_bytes += b;
  }
  CHECK(cudaMemcpyToSymbol(ops_dev, ops.data(), ops.size() * sizeof(Op)));
  unsigned *counter, *out;
  CHECK(cudaMalloc(&counter, 256));
  CHECK(cudaMalloc(&out, 256));
  const int n = static_cast<int>(ops.size());

  const float plain =
      time_ms([&] { op_kernel<false><<<sms * 4, 512>>>(ops[0].data, total / 16, out); });
  const double peak = total / (plain * 1e-3);
  std::printf("%s, %d SMs; plain read of %.2f GB: %.2f TB/s; step reads %.3f GB, floor %.1f us\n",
              prop.name, sms, total * 1e-9, peak * 1e-12, weight_bytes * 1e-9,
              weight_bytes / peak * 1e6);
  auto report = [&](const char* name, float ms) {
    std::printf("%-34s %8.1f us  %6.0f tok/s  %5.1f %% of the plain read\n", name, ms * 1e3,
                1e3 / ms, 100 * weight_bytes / (ms * 1e-3) / peak);
  };
  for (int per_sm : {1, 2, 4}) {
    char name[64];
    std::snprintf(name, sizeof name, "graph, %d ctas a SM", per_sm);
    report(name, graph_time<false>(ops, sms * per_sm, out));
    std::snprintf(name, sizeof name, "graph+pdl, %d ctas a SM", per_sm);
    report(name, graph_time<true>(ops, sms * per_sm, out));
  }
  report("pdl+ring 8 warps x 3 x 4 KB, 1 cta", ring_time<8, 3, 4096>(ops, sms, out));
  report("pdl+ring 8 warps x 6 x 2 KB, 1 cta", ring_time<8, 6, 2048>(ops, sms, out));
  report("pdl+ring 8 warps x 6 x 1 KB, 2 cta", ring_time<8, 6, 1024>(ops, sms * 2, out));
  report("pdl+ring 8 warps x 3 x 2 KB, 2 cta", ring_time<8, 3, 2048>(ops, sms * 2, out));
  report("pdl+ring 8 warps x 6 x 2 KB, 2 cta", ring_time<8, 6, 2048>(ops, sms * 2, out));
  report("pdl+ring 4 warps x 6 x 2 KB, 2 cta", ring_time<4, 6, 2048>(ops, sms * 2, out));
  report("pdl+ring 4 warps x 4 x 2 KB, 3 cta", ring_time<4, 4, 2048>(ops, sms * 3, out));
  report("barriers alone", time_ms([&] {
           CHECK(cudaMemsetAsync(counter, 0, 4));
           barrier_kernel<<<sms, 512>>>(n, counter, out, false);
         }));
  report("barrier, loads after it", time_ms([&] {
           CHECK(cudaMemsetAsync(counter, 0, 4));
           barrier_kernel<<<sms, 512>>>(n, counter, out, true);
         }));
  report("stream 8 warps x 6 x 4 KB", stream_time<8, 6, 4096>(n, sms, counter, out));
  report("stream 8 warps x 12 x 2 KB", stream_time<8, 12, 2048>(n, sms, counter, out));
  report("stream 16 warps x 3 x 4 KB", stream_time<16, 3, 4096>(n, sms, counter, out));
  report("stream 16 warps x 6 x 2 KB", stream_time<16, 6, 2048>(n, sms, counter, out));
  report("stream 8 warps x 3 x 8 KB", stream_time<8, 3, 8192>(n, sms, counter, out));
  report("stream 4 warps x 6 x 8 KB", stream_time<4, 6, 8192>(n, sms, counter, out));
  report("stream 16 warps x 4 x 2 KB (128K)", stream_time<16, 4, 2048>(n, sms, counter, out));
  return 0;
}
