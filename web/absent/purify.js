// Stands for the library where it could not be had when the program was built.
export default null;
