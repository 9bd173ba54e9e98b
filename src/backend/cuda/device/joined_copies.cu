#include "backend/cuda/device/joined_copies.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "backend/cuda/device/cuda_check.h"
#include "backend/cuda/device/device_memory.h"

namespace bl::cuda {
namespace {

using Word = std::uint32_t;

// The copy engine is faster for larger copies.
constexpr std::size_t kLargest = 4 << 10;
constexpr int kThreads = 256;

struct Copy {
  Word* to = nullptr;
  const Word* from = nullptr;
  std::uint32_t words = 0;
};

struct CopyList {
  static constexpr int kMost = 16;
  Copy copies[kMost];
};

// One CTA makes one copy. __ldcv reads past the caches, because the host may have written the
// source since the last replay.
__global__ void __launch_bounds__(kThreads) copies_kernel(const __grid_constant__ CopyList list) {
  const Copy& copy = list.copies[blockIdx.x];
#pragma unroll 4
  for (std::uint32_t i = threadIdx.x; i < copy.words; i += kThreads) {
    copy.to[i] = __ldcv(copy.from + i);
  }
}

// Returns the nodes that depend on `node`. Edges of programmatic dependent launches carry edge
// data, so the variant that returns it is needed: CUDA 13 gave it the plain name, CUDA 12 has it as
// _v2.
cudaError_t find_behind(cudaGraphNode_t node, cudaGraphNode_t* next, std::size_t& count) {
  cudaGraphEdgeData edge{};
  cudaGraphEdgeData* const data = next != nullptr ? &edge : nullptr;
#if CUDART_VERSION >= 13000
  return cudaGraphNodeGetDependentNodes(node, next, data, &count);
#else
  return cudaGraphNodeGetDependentNodes_v2(node, next, data, &count);
#endif
}

cudaError_t add_edge(cudaGraph_t step, cudaGraphNode_t from, cudaGraphNode_t to) {
#if CUDART_VERSION >= 13000
  return cudaGraphAddDependencies(step, &from, &to, nullptr, 1);
#else
  return cudaGraphAddDependencies_v2(step, &from, &to, nullptr, 1);
#endif
}

std::size_t count_behind(cudaGraphNode_t node) {
  std::size_t count = 0;
  BL_CUDA_CHECK(find_behind(node, nullptr, count));
  return count;
}

// Returns the copy that a node makes, if it is one that copies_kernel can make: contiguous, small,
// aligned to words, and with at most one dependent node.
std::optional<Copy> copy_of(cudaGraphNode_t node) {
  cudaGraphNodeType type;
  BL_CUDA_CHECK(cudaGraphNodeGetType(node, &type));
  if (type != cudaGraphNodeTypeMemcpy || count_behind(node) > 1) return std::nullopt;
  cudaMemcpy3DParms p{};
  BL_CUDA_CHECK(cudaGraphMemcpyNodeGetParams(node, &p));
  const std::size_t bytes = p.extent.width;
  const bool plain = p.extent.height == 1 && p.extent.depth == 1 && p.srcArray == nullptr &&
                     p.dstArray == nullptr && p.srcPos.x == 0 && p.dstPos.x == 0;
  const auto is_of_words = [](const void* at) {
    return reinterpret_cast<std::uintptr_t>(at) % sizeof(Word) == 0;
  };
  if (!plain || bytes > kLargest || bytes % sizeof(Word) != 0 || !is_of_words(p.dstPtr.ptr) ||
      !is_of_words(p.srcPtr.ptr) || !is_reachable(p.dstPtr.ptr) || !is_reachable(p.srcPtr.ptr)) {
    return std::nullopt;
  }
  return Copy{static_cast<Word*>(p.dstPtr.ptr), static_cast<const Word*>(p.srcPtr.ptr),
              static_cast<std::uint32_t>(bytes / sizeof(Word))};
}

// Returns the nodes that follow one another from the graph's root on; none where it has several
// roots. That is the whole step, unless a library forks the stream.
std::vector<cudaGraphNode_t> chain_of(cudaGraph_t step) {
  std::size_t roots = 0;
  BL_CUDA_CHECK(cudaGraphGetRootNodes(step, nullptr, &roots));
  if (roots != 1) return {};
  std::vector<cudaGraphNode_t> chain(1);
  BL_CUDA_CHECK(cudaGraphGetRootNodes(step, chain.data(), &roots));
  while (count_behind(chain.back()) == 1) {
    cudaGraphNode_t next = nullptr;
    std::size_t one = 1;
    BL_CUDA_CHECK(find_behind(chain.back(), &next, one));
    chain.push_back(next);
  }
  return chain;
}

// Consecutive copies that one kernel can make side by side, and the nodes that they replace.
struct Run {
  std::vector<cudaGraphNode_t> nodes;
  CopyList list;

  bool empty() const { return nodes.empty(); }
  // Whether the list has room for `copy` and it can run beside the others: its destination overlaps
  // none of their sources and destinations, and its source none of their destinations.
  bool has_room_for(const Copy& copy) const {
    const auto meet = [](const Word* a, std::uint32_t a_words, const Word* b,
                         std::uint32_t b_words) { return a < b + b_words && b < a + a_words; };
    const auto apart = [&](const Copy& other) {
      return !meet(copy.to, copy.words, other.to, other.words) &&
             !meet(copy.to, copy.words, other.from, other.words) &&
             !meet(copy.from, copy.words, other.to, other.words);
    };
    return nodes.size() < CopyList::kMost &&
           std::all_of(list.copies, list.copies + nodes.size(), apart);
  }
  void add(cudaGraphNode_t node, const Copy& copy) {
    list.copies[nodes.size()] = copy;
    nodes.push_back(node);
  }
};

// Replaces the run by one kernel between `before` and `next`, either of which may be null, and
// returns the kernel's node.
cudaGraphNode_t replace(cudaGraph_t step, Run& run, cudaGraphNode_t before, cudaGraphNode_t next) {
  void* parameters[] = {&run.list};
  cudaKernelNodeParams params{};
  params.func = reinterpret_cast<void*>(copies_kernel);
  params.gridDim = dim3(static_cast<unsigned>(run.nodes.size()));
  params.blockDim = dim3(kThreads);
  params.kernelParams = parameters;
  cudaGraphNode_t kernel = nullptr;
  BL_CUDA_CHECK(cudaGraphAddKernelNode(&kernel, step, &before, before != nullptr ? 1 : 0, &params));
  if (next != nullptr) BL_CUDA_CHECK(add_edge(step, kernel, next));
  for (cudaGraphNode_t node : run.nodes) BL_CUDA_CHECK(cudaGraphDestroyNode(node));
  return kernel;
}

}  // namespace

void join_copies(cudaGraph_t step) {
  cudaGraphNode_t before = nullptr;
  Run run;
  for (cudaGraphNode_t node : chain_of(step)) {
    const std::optional<Copy> copy = copy_of(node);
    if (!run.empty() && (!copy || !run.has_room_for(*copy))) {
      before = replace(step, run, before, node);
      run = {};
    }
    if (copy) {
      run.add(node, *copy);
    } else {
      before = node;
    }
  }
  if (!run.empty()) replace(step, run, before, nullptr);
}

}  // namespace bl::cuda
