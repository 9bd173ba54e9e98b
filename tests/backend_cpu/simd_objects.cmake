# cmake -DOBJECTS=…;… -DISA=… -DNM=… -DOBJDUMP=… -P: fails where an object file of an instruction
# set offers others a function of everybody's (the linker keeps one copy, perhaps this one, for every
# processor), or has lost its prefetches (compilers take functions that only prefetch for empty).
cmake_policy(VERSION 3.22)
set(prefetching attention_simd matmul_dense_simd matmul_quantized_simd)
foreach(object ${OBJECTS})
  execute_process(COMMAND ${NM} -C --defined-only ${object} OUTPUT_VARIABLE symbols
                  COMMAND_ERROR_IS_FATAL ANY)
  if(NOT symbols MATCHES " bl::cpu::${ISA}::")
    message(FATAL_ERROR "${object} defines nothing of bl::cpu::${ISA}")
  endif()
  string(REGEX MATCHALL "[^\n]* [WVu] [^\n]*" shared "${symbols}")
  list(FILTER shared EXCLUDE REGEX "bl::cpu::${ISA}::")
  if(shared)
    message(FATAL_ERROR "${object} defines functions that other files may take: ${shared}")
  endif()
  get_filename_component(name ${object} NAME)
  string(REGEX REPLACE "\\.cc.*" "" name ${name})
  if(name IN_LIST prefetching)
    list(REMOVE_ITEM prefetching ${name})
    execute_process(COMMAND ${OBJDUMP} -dC --no-show-raw-insn ${object} OUTPUT_VARIABLE code
                    COMMAND_ERROR_IS_FATAL ANY)
    # Where the codes of a tile are decoded, the next tile's are fetched.
    if(name STREQUAL matmul_quantized_simd)
      string(REGEX MATCH "decode_codes<4, 1>[^\n]*>:\n( [^\n]*\n)*" code "${code}")
    endif()
    # And where a cache of halves is read.
    if(name STREQUAL attention_simd)
      string(REGEX MATCHALL "[^\n]*unsigned short[^\n]*>:\n( [^\n]*\n)*" code "${code}")
    endif()
    if(NOT code MATCHES "prefetcht1")
      message(FATAL_ERROR "${object} fetches nothing ahead")
    endif()
  endif()
endforeach()
if(prefetching)
  message(FATAL_ERROR "not among the object files: ${prefetching}")
endif()
