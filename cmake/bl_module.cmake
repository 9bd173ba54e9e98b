# bl_flags: warnings, sanitizers and optimisation shared by every target.
add_library(bl_flags INTERFACE)
target_include_directories(bl_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_compile_options(bl_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wconversion -Wno-sign-conversion -Werror
  -fno-math-errno -fno-trapping-math>)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # GCC 12 sees overlaps in std::string that are not there (GCC bug 105651).
  target_compile_options(bl_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
  if(CMAKE_UNITY_BUILD)
    # GCC takes every file of a batch for a header, where anonymous types in classes would be wrong.
    target_compile_options(bl_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  endif()
endif()
if(BL_SANITIZE)
  target_compile_options(bl_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${BL_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all -g1>)
  target_link_options(bl_flags INTERFACE -fsanitize=${BL_SANITIZE})
endif()
# Takes the instrumentation away again. Options of a target precede those of the libraries that it links, and the last one
# counts: this must be linked last.
add_library(bl_unsanitized INTERFACE)
target_compile_options(bl_unsanitized INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=all>)

# bl_module(name [FAST] [SOURCES a.cc ...] [DEPS module ...] [LIBS library ...])
# One static library a folder of src/. DEPS must agree with layers.toml (tools/check_layers).
# Without SOURCES it takes every .cc file of the folder. FAST: optimised with -O3 in a release.
function(bl_module name)
  cmake_parse_arguments(ARG "FAST" "" "SOURCES;DEPS;LIBS" ${ARGN})
  if(NOT ARG_SOURCES)
    file(GLOB ARG_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  endif()
  add_library(bl_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(bl_${name} PUBLIC bl_flags third::fmt nlohmann_json::nlohmann_json)
  if(ARG_FAST)
    target_compile_options(bl_${name} PRIVATE $<$<CONFIG:Release>:-O3>)
  endif()
  foreach(dep ${ARG_DEPS})
    target_link_libraries(bl_${name} PUBLIC bl_${dep})
  endforeach()
  target_link_libraries(bl_${name} PUBLIC ${ARG_LIBS})
endfunction()

# bl_test(name [THREADS] [OPTIMISED] SOURCES a_test.cc ... DEPS module ... [LIBS library ...])
# One test program a folder of tests/; each gtest case becomes one ctest case (test_cases.cmake). THREADS: what it tests
# shares memory between threads; target thread_tests and label `threads` gather these for preset tsan.
# OPTIMISED: it computes so much itself that it must be optimised.
function(bl_test name)
  cmake_parse_arguments(ARG "THREADS;OPTIMISED" "" "SOURCES;DEPS;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  if(BL_SANITIZE)
    target_compile_definitions(${name} PRIVATE BL_SANITIZED=1)
  else()
    target_compile_definitions(${name} PRIVATE BL_SANITIZED=0)
  endif()
  # What a test says runs once; its checks expand to so much code that building it is what takes time. Address and
  # undefined-behaviour sanitizers watch the rooms under test: within the tests themselves they would triple that time.
  if(ARG_OPTIMISED)
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
    if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
      # With -O1, GCC 12 takes members of variants for uninitialized.
      target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-Wno-maybe-uninitialized>)
    endif()
  elseif(BL_SANITIZE MATCHES address OR NOT BL_SANITIZE)
    target_compile_options(${name} PRIVATE -O0)
  endif()
  if(NOT BL_SANITIZE)
    # Half of the time goes into headers that every file of a program reads.
    set_target_properties(${name} PROPERTIES UNITY_BUILD_BATCH_SIZE 14)
  endif()
  target_link_libraries(${name} PRIVATE bl_test_support bl_test_main)
  foreach(dep ${ARG_DEPS})
    target_link_libraries(${name} PRIVATE bl_${dep})
  endforeach()
  target_link_libraries(${name} PRIVATE ${ARG_LIBS})
  if(BL_SANITIZE MATCHES address)
    target_link_libraries(${name} PRIVATE bl_unsanitized)
  endif()
  set(properties TIMEOUT 600)
  if(ARG_THREADS)
    list(APPEND properties LABELS threads)
    if(NOT TARGET thread_tests)
      add_custom_target(thread_tests)
    endif()
    add_dependencies(thread_tests ${name})
  endif()
  file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${name}_cases.cmake CONTENT
"include(${CMAKE_SOURCE_DIR}/cmake/test_cases.cmake)
bl_test_cases($<TARGET_FILE:${name}> ${BL_SKIPPED_STATUS} ${properties})
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}_cases.cmake)
endfunction()

# bl_fuzz(name SOURCES a_fuzz.cc DEPS module ...): a libFuzzer program. Its seeds are tests/fuzz/seeds/NAME.tar.xz, which
# the build unpacks into fuzz-seeds/NAME. With the address sanitizer, every compiler builds NAME_replay, which runs the files
# that it is given, and the tests run every seed. With BL_SANITIZE=…,fuzzer-no-link (preset `fuzz`, clang) the libraries
# are compiled with the fuzzer's coverage and NAME itself is built; tools/run_fuzzers runs it.
function(bl_fuzz name)
  if(NOT BL_SANITIZE MATCHES address)
    return()  # without a sanitizer, a replay shows little
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LIBS" ${ARGN})
  set(archive ${CMAKE_SOURCE_DIR}/tests/fuzz/seeds/${name}.tar.xz)
  set(seeds ${CMAKE_BINARY_DIR}/fuzz-seeds/${name})
  # The old folder goes first, so that a seed that has left the archive is not replayed any more.
  add_custom_command(
    OUTPUT ${seeds}.stamp
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${seeds}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/fuzz-seeds
    COMMAND ${CMAKE_COMMAND} -E chdir ${CMAKE_BINARY_DIR}/fuzz-seeds ${CMAKE_COMMAND} -E tar xJf ${archive}
    COMMAND ${CMAKE_COMMAND} -E touch ${seeds}.stamp
    DEPENDS ${archive}
    VERBATIM)
  add_custom_target(${name}_seeds DEPENDS ${seeds}.stamp)
  set(targets ${name}_replay)
  add_executable(${name}_replay ${ARG_SOURCES} ${CMAKE_SOURCE_DIR}/tests/fuzz/replay_main.cc)
  if(BL_SANITIZE MATCHES fuzzer-no-link)
    add_executable(${name} ${ARG_SOURCES})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    list(APPEND targets ${name})
    if(NOT TARGET fuzzers)
      add_custom_target(fuzzers)
    endif()
    add_dependencies(fuzzers ${name})
    # tools/run_fuzzers learns from this file which fuzzers there are and where their seeds are.
    file(WRITE ${CMAKE_BINARY_DIR}/fuzzers/${name} "${seeds}\n")
  endif()
  foreach(target ${targets})
    add_dependencies(${target} ${name}_seeds)
    foreach(dep ${ARG_DEPS})
      target_link_libraries(${target} PRIVATE bl_${dep})
    endforeach()
    target_link_libraries(${target} PRIVATE ${ARG_LIBS})
  endforeach()
  add_test(NAME ${name}_seeds COMMAND ${name}_replay ${seeds})
endfunction()

# bl_embed_documents(VARIABLE FUNCTION DOCUMENTS…): a source, put into VARIABLE, that defines FUNCTION() of this folder's
# FUNCTION.h: the documents by name (base/embedded_document.h).
function(bl_embed_documents variable function)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${function}.cc)
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${CMAKE_SOURCE_DIR}/src OUTPUT_VARIABLE room)
  set(script ${CMAKE_SOURCE_DIR}/cmake/embed_documents.cmake)
  add_custom_command(
    OUTPUT ${source}
    COMMAND ${CMAKE_COMMAND} -DOUT=${source} -DHEADER=${room}/${function}.h -DFUNCTION=${function}
            "-DDOCUMENTS=${ARGN}" -P ${script}
    DEPENDS ${ARGN} ${script}
    VERBATIM)
  set(${variable} ${source} PARENT_SCOPE)
endfunction()

# bl_embed_files(VARIABLE FUNCTION FILES…): a source, put into VARIABLE, that defines FUNCTION() of this folder's
# FUNCTION.h: any files by name, plain and compressed.
function(bl_embed_files variable function)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${function}.cc)
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${CMAKE_SOURCE_DIR}/src OUTPUT_VARIABLE room)
  set(script ${CMAKE_SOURCE_DIR}/cmake/embed_files.cmake)
  add_custom_command(
    OUTPUT ${source}
    COMMAND ${CMAKE_COMMAND} -DOUT=${source} -DHEADER=${room}/${function}.h -DFUNCTION=${function}
            "-DFILES=${ARGN}" -P ${script}
    DEPENDS ${ARGN} ${script}
    VERBATIM)
  # As one of several files of a unity build it would be compiled again with each of them.
  set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set(${variable} ${source} PARENT_SCOPE)
endfunction()
