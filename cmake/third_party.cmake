# Libraries of others, as targets third::NAME. With BL_STATIC_DEPS they are linked statically, so that
# the program needs the C library alone and runs on another machine. Debian ships most as archives
# beside the shared libraries; of fmt it has the sources in its headers (compiled here), of simdjson
# neither (fetched from PyPI into the build folder, pinned). What cannot be had statically is linked
# as a shared library, with a line that says so.
#
# Sanitizers want the shared C++ runtime, and find the same in what they do not see: they take shared
# libraries.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)

# third::toml: toml++ as headers alone, so that nothing is linked.
find_path(toml_include toml++/toml.h REQUIRED)
mark_as_advanced(toml_include)
add_library(third_toml INTERFACE)
add_library(third::toml ALIAS third_toml)
target_include_directories(third_toml SYSTEM INTERFACE ${toml_include})
target_compile_definitions(third_toml INTERFACE TOML_HEADER_ONLY=1)

set(third_party_static ON)
if(NOT BL_STATIC_DEPS OR BL_SANITIZE)
  set(third_party_static OFF)
endif()
set(third_party_shared "")  # names of those that had to be linked so all the same

# third::NAME is the shared library TARGET.
function(third_party_link_shared name target)
  add_library(third_${name} INTERFACE)
  add_library(third::${name} ALIAS third_${name})
  target_link_libraries(third_${name} INTERFACE ${target})
endfunction()

# third::NAME from pkg-config's MODULE, statically from ARCHIVES, in the order of linking.
function(third_party_from_pkg_config name module)
  pkg_check_modules(${name} REQUIRED IMPORTED_TARGET GLOBAL ${module})
  set(paths "")
  foreach(archive ${ARGN})
    find_library(${archive}_archive lib${archive}.a)
    mark_as_advanced(${archive}_archive)
    list(APPEND paths ${${archive}_archive})
  endforeach()
  if(NOT third_party_static OR paths MATCHES NOTFOUND)
    third_party_link_shared(${name} PkgConfig::${name})
  else()
    add_library(third_${name} INTERFACE)
    add_library(third::${name} ALIAS third_${name})
    target_include_directories(third_${name} SYSTEM INTERFACE ${${name}_INCLUDE_DIRS})
    target_link_libraries(third_${name} INTERFACE ${paths})
    return()
  endif()
  set(third_party_shared ${third_party_shared} ${name} PARENT_SCOPE)
endfunction()

# third::NAME compiled from SOURCE, with the headers in FOLDER.
function(third_party_compile name source folder)
  add_library(third_${name} STATIC ${source})
  add_library(third::${name} ALIAS third_${name})
  target_include_directories(third_${name} SYSTEM PUBLIC ${folder})
  set_target_properties(third_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()

third_party_from_pkg_config(pcre2 libpcre2-8 pcre2-8)
third_party_from_pkg_config(utf8proc libutf8proc utf8proc)
third_party_from_pkg_config(edit libedit edit tinfo bsd md)
third_party_from_pkg_config(openssl openssl ssl crypto)
third_party_from_pkg_config(zlib zlib z)
third_party_from_pkg_config(zstd libzstd zstd)

find_package(fmt REQUIRED)
get_target_property(fmt_type fmt::fmt TYPE)
get_target_property(fmt_include fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
if(third_party_static AND NOT fmt_type STREQUAL STATIC_LIBRARY
   AND EXISTS ${fmt_include}/fmt/format-inl.h AND fmt_VERSION VERSION_LESS 10)
  third_party_compile(fmt ${CMAKE_SOURCE_DIR}/cmake/fmt_library.cc ${fmt_include})
else()
  third_party_link_shared(fmt fmt::fmt)
  if(NOT fmt_type STREQUAL STATIC_LIBRARY)
    list(APPEND third_party_shared fmt)
  endif()
endif()

set(BL_SIMDJSON_SOURCE "" CACHE PATH "folder with simdjson.h and simdjson.cpp; empty: fetched")
set(simdjson_source ${BL_SIMDJSON_SOURCE})
if(third_party_static AND NOT simdjson_source)
  set(simdjson_source ${CMAKE_BINARY_DIR}/third_party/simdjson)
  if(NOT EXISTS ${simdjson_source}/simdjson.cpp)
    execute_process(COMMAND ${CMAKE_SOURCE_DIR}/tools/fetch_simdjson ${simdjson_source})
  endif()
endif()
if(third_party_static AND EXISTS ${simdjson_source}/simdjson.cpp)
  third_party_compile(simdjson ${simdjson_source}/simdjson.cpp ${simdjson_source})
else()
  find_package(simdjson REQUIRED)
  third_party_link_shared(simdjson simdjson::simdjson)
  list(APPEND third_party_shared simdjson)
endif()

# third_party_page_libraries: marked.js and purify.js, the libraries of the web page. Without them the page is built all
# the same, with modules in their place that say so, and shows plain text.
set(BL_PAGE_LIBRARIES "" CACHE PATH "folder with marked.js and purify.js; empty: fetched")
set(page_libraries ${BL_PAGE_LIBRARIES})
if(NOT page_libraries)
  set(page_libraries ${CMAKE_BINARY_DIR}/third_party/page)
  execute_process(COMMAND ${CMAKE_SOURCE_DIR}/tools/fetch_page_libraries ${page_libraries})
endif()
if(NOT EXISTS ${page_libraries}/marked.js OR NOT EXISTS ${page_libraries}/purify.js)
  message(WARNING "the libraries of the web page could not be had (Debian: node-marked, node-dompurify): it will show "
                  "answers as plain text instead of Markdown. Configure again once they can be fetched.")
  set(page_libraries ${CMAKE_SOURCE_DIR}/web/absent)
endif()
set(third_party_page_libraries ${page_libraries}/marked.js ${page_libraries}/purify.js)

# third::runtime: the C++ runtime, which a shared library of C++ must not have beside it twice.
add_library(third_runtime INTERFACE)
add_library(third::runtime ALIAS third_runtime)
if(third_party_static AND third_party_shared)
  message(WARNING "no static library of ${third_party_shared} here: the program will need the shared "
                  "ones (-DBL_STATIC_DEPS=OFF links all so, without this line)")
elseif(third_party_static)
  target_link_options(third_runtime INTERFACE -static-libstdc++ -static-libgcc)
endif()
