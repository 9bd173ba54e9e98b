# cmake -DOUT=FILE -DPRESETS="a.json;b.json" -P embed_presets.cmake: the documents as a C++ source.
set(text "#include \"sample/embedded_presets.h\"\n\nnamespace bl {\nnamespace {\nconstexpr EmbeddedPreset kPresets[] = {\n")
foreach(preset ${PRESETS})
  get_filename_component(name ${preset} NAME_WE)
  file(READ ${preset} json)
  string(APPEND text "{\"${name}\",\nR\"~preset~(${json})~preset~\"},\n")
endforeach()
string(APPEND text "};\n}  // namespace\n\nstd::span<const EmbeddedPreset> embedded_presets() { return kPresets; }\n\n}  // namespace bl\n")
file(WRITE ${OUT} "${text}")
