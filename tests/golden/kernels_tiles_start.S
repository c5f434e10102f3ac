# Boots kernels_tiles.cpp without a system, for emulators of processors that systems do not yet start on: multiboot entry,
# long mode over the first GiB, AVX-512 and tile state enabled, main(). What main() prints goes to the serial port.
#   gcc -c tests/golden/kernels_tiles_start.S -o start.o
#   g++ -std=c++20 -O2 -ffreestanding -fno-exceptions -fno-rtti -fno-stack-protector -fno-pic -mno-red-zone -I. \
#       -c tests/golden/kernels_tiles.cpp -o main.o
#   ld -n -N -Ttext=0x100000 start.o main.o -o kernel.elf64 && objcopy -O elf32-i386 kernel.elf64 kernel.elf
# kernel.elf is booted from a CD of isolinux by mboot.c32.
.section .note.GNU-stack, ""
.section .bss
.align 4096
pml4: .skip 4096
pdpt: .skip 4096
stack: .skip 1048576
top:
.section .data
.align 8
gdt: .quad 0, 0x00af9a000000ffff, 0x00cf92000000ffff
gdt_at: .word 23
.long gdt
.section .text
.align 4
.long 0x1badb002, 0, -0x1badb002
.code32
.global _start
_start:
  mov $top, %esp
  mov $pdpt + 3, %eax
  mov %eax, pml4
  movl $0x83, pdpt            # 1 GiB page
  mov $pml4, %eax
  mov %eax, %cr3
  mov %cr4, %eax
  or $0x40620, %eax           # PAE, OSFXSR, OSXMMEXCPT, OSXSAVE
  mov %eax, %cr4
  mov $0xc0000080, %ecx
  rdmsr
  or $0x100, %eax
  wrmsr
  mov %cr0, %eax
  and $~4, %eax               # EM off
  or $0x80000002, %eax
  mov %eax, %cr0
  lgdt gdt_at
  ljmp $8, $long_mode
.code64
long_mode:
  mov $16, %ax
  mov %ax, %ds
  mov %ax, %es
  mov %ax, %ss
  xor %ecx, %ecx
  xor %edx, %edx
  mov $0x600e7, %eax          # x87, SSE, AVX, AVX-512, tiles
  xsetbv
  call main
1: hlt
  jmp 1b
