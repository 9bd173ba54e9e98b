# cmake -DOUT=FILE -DHEADER=room/x.h -DFUNCTION=x -DDOCUMENTS="a.json;b.json" -P embed_documents.cmake
# The documents as one C++ source that defines the function which HEADER declares.
set(text "#include \"${HEADER}\"\n\nnamespace bl {\nnamespace {\nconstexpr EmbeddedDocument kDocuments[] = {\n")
foreach(document ${DOCUMENTS})
  get_filename_component(name ${document} NAME_WE)
  file(READ ${document} json)
  # A string literal may be at most 64 KiB in strict compilers: cut into pieces.
  string(LENGTH "${json}" length)
  set(pieces "")
  set(at 0)
  while(at LESS length)
    string(SUBSTRING "${json}" ${at} 8000 piece)
    string(APPEND pieces "R\"~document~(${piece})~document~\"\n")
    math(EXPR at "${at} + 8000")
  endwhile()
  string(APPEND text "{\"${name}\",\n${pieces}},\n")
endforeach()
string(APPEND text "};\n}  // namespace\n\nstd::span<const EmbeddedDocument> ${FUNCTION}() { return kDocuments; }\n\n}  // namespace bl\n")
file(WRITE ${OUT} "${text}")
